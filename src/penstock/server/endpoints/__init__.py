"""What each operation does with its call, one module per noun."""
