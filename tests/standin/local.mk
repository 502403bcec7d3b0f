# tests/standin
