"""Background duties that repair what nobody finished; one file each, through the same use cases."""
