# src/loop: see HACKING.md for what lives here
