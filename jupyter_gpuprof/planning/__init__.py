"""The foresight: what another device, or several, would be worth."""
