"""Speed of a real server, with the limits of the machine measured in the same run."""
