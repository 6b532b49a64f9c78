"""Real flows in the simulated world: the steps of their tasks are production's own."""
