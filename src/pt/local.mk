# src/pt: see HACKING.md for what lives here
