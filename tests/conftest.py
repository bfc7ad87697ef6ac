"""What holds for all tests."""

from hypothesis import settings

# A case that takes long on a busy machine is no fault.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
