"""Who holds which device, what became of its time, and how it is given back."""
