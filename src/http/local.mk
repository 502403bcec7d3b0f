# src/http: see HACKING.md for what lives here
