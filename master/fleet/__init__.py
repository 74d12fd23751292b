"""The workers as placement sees them: who may be given data, and where everybody is."""
