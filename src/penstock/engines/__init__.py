"""Other engines that can run the same code. Each is an extra, loaded only when its address or flag is used."""
