"""Operations on namespaces: batch operations, retention, archive, export, journal and statistics."""
