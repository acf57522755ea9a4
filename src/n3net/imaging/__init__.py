"""What cameras do to pictures: mosaics and how they are made whole again, noise, development, compression."""
