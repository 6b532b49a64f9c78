"""How a stage runs one step: the circuit of its operators."""
