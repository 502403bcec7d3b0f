# src/analysis: see HACKING.md for what lives here
