# src/json
