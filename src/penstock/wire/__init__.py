"""JSON and byte formats of the network protocols: parsing and rendering, no decisions."""
