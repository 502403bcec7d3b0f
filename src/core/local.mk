# src/core: see HACKING.md for what lives here
