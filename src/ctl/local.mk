# src/ctl: see HACKING.md for what lives here
