"""The JSON shapes and byte formats that cross the network: parsed and rendered here, decided elsewhere."""
