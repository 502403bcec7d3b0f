# src/sglang: see HACKING.md for what lives here
