"""Programs that the fault tests start as processes of their own."""
