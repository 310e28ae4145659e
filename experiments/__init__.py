"""The paper's tables and figures: trainings packed onto one GPU, measurements, and the page that shows them."""
