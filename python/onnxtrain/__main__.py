"""python -m onnxtrain: the program `onnxtrain`."""
import os
import sys

from onnxtrain.program import find_program

os.execv(find_program(), ["onnxtrain", *sys.argv[1:]])
