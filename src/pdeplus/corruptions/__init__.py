"""The nineteen common corruptions (Hendrycks and Dietterich, 2019), batched and seeded per image."""
