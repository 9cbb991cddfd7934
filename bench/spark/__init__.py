"""Speed of the Spark connector."""
