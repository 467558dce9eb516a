"""Change sets: several limits that are proposed, approved, applied and rolled back as one."""
