"""What the fault suite is made of: real drivers, faults at random moments, and what must hold afterwards."""
