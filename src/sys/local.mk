# src/sys: see HACKING.md for what lives here
