"""vSphere: hosts, clusters and machines of a vCenter as rows of the ``vm_balance`` pack, and its plans as migrations.

The core does no input or output: ``inventory`` (what there is), ``pack_rows``, ``move_order``, ``planning``,
``migrations`` (what to do next, told the time and what happened) and ``balance_loop``.  The shells are ``connection``
and ``property_collection`` (the vendor's blocking client, in worker threads) and ``execution``.
"""
