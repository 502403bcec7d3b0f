# src/programs: see HACKING.md for what lives here
