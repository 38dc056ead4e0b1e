"""What goes over the wire, and what it weighs."""
