"""How long nobody can send when something of a group fails."""
