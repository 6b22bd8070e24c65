"""Generated tasks on which loops differ from depth: seeded, unlimited, with exact answers."""
