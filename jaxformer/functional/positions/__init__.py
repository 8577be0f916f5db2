"""Position schemes: sinusoidal, rotary and its scaling, and biases."""
