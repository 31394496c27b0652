"""The mock provider: a strict vendor on loopback, played from a script. No real model is near."""
