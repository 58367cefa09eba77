"""Who will be called next: past requests, learnt maps, and how often each was right. Numbers only, no tensors."""
