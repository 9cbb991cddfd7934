"""What a subscription may ask for: tags, SQL92 expressions, and the Bloom filter that spares reading records."""
