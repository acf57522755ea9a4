"""Models and estimates of noise: white, of photographs, of sensors."""
