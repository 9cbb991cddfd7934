"""What each level of safety costs: sends/s, latency and CPU with one, two and three copies; how fast a copy follows."""
