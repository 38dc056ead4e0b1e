"""What clients do to their embeddings before anybody sees them, and what that is worth."""
