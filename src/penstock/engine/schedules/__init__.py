"""Schedules: kept, fired by whichever server comes first, caught up, backfilled and explained."""
