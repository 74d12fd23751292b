"""The asyncio edges that the roles share; nothing else in common touches the world."""
