"""A torch app in the shape of Flower's quickstart."""
