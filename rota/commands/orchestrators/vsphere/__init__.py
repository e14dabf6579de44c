"""``rota vsphere``: the machines of a vCenter, planned for and moved."""
