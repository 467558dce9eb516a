"""The whole application in process: each operation, and each error as the client sees it."""
