"""What `make dist` makes; scripts/dist.py is its entry."""
