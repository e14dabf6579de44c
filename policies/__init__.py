"""Policy packs: data, not code.  ``mgmt.load_pack`` reads them."""
