"""A spoken sentence for the tests, by the speech synthesizer eSpeak NG.

    python scripts/spoken_wav.py [OUT]

Needs the packages of scripts/requirements-goldens.txt. Writes tests/fixtures/spoken.wav: 16-bit mono at the synthesizer's
own rate of 22,050 Hz, the same bytes each time.
"""
import ctypes
import sys
import wave
from pathlib import Path

import espeakng_loader

SENTENCE = "The quick brown fox jumps over the lazy dog."
# Constants of the library's header: samples are handed to a callback while it synthesizes, positions count characters.
SYNCHRONOUS, CHARACTERS, UTF8 = 2, 1, 1
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def spoken(text):
    """Sample rate and 16-bit samples of `text`."""
    library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, str(espeakng_loader.get_data_path()).encode(), 0)
    assert rate > 0, "the synthesizer did not start"
    parts = []

    @CALLBACK
    def take(samples, count, _):
        if samples and count > 0:
            parts.append(ctypes.string_at(samples, 2 * count))
        return 0

    library.espeak_SetSynthCallback(take)
    library.espeak_SetVoiceByName(b"en")
    encoded = text.encode()
    library.espeak_Synth(encoded, len(encoded) + 1, 0, CHARACTERS, 0, UTF8, None, None)
    library.espeak_Synchronize()
    return rate, b"".join(parts)


out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "tests/fixtures/spoken.wav"
rate, samples = spoken(SENTENCE)
with wave.open(str(out), "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(rate)
    file.writeframes(samples)
print(f"{out.name}: {len(samples) // 2} samples at {rate} Hz")
