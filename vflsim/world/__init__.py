"""Worlds run a protocol's coroutines: in virtual time on SimPy, or in real time on asyncio."""
