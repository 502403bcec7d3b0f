# src/conf: see HACKING.md for what lives here
