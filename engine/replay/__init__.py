"""What a log's answers would have cost with other policies and budgets; the very code that ran, without the model."""
