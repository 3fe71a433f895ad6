"""The word lists that training values come from.

Only data. The evaluation has lists of its own in ``held_out.py``; nothing here may be read there.
An underscore stands for a space inside a value.
"""

NAMES = """
Aaron Adam Adele Agnes Ahmed Aisha Alan Albert Alex Alice Amina Amir Amy Ana Andrea Andrew Anita
Anna Anna-Lena Anton Arjun Arthur Astrid Axel Bao Barbara Ben Bianca Bilal Bob Boris Brian Bruno
Camila Carl Carmen Cecilia Chen Chloe Clara Claire Daniel Daria David Deepa Diego Dina Dmitri Dora
Edgar Elena Eli Elias Elif Ella Emil Emily Emma Enzo Eric Erik Esther Eva Fatima Felix Fiona
Florian Frank Frida Gabriel George Gita Gloria Greta Hana Hannah Harry Hassan Heidi Helen Henry
Hiro Hugo Ian Ibrahim Ida Igor Ines Ingrid Irene Iris Isaac Ivan Jack Jakub James Jan Jane Jasmine
Javier Jean Jenny Joanna Joe John José Juan Jude Julia Jürgen Kai Karim Karl Kate Keiko Ken Kevin
Lara Lars Laura Layla Lea Leo Lena Liam Lila Lin Lisa Liu Lola Lucas Lucy Luis Łukasz Maja Marco
Maria Mark Marta Mary Max Maya Mei Mia Michael Miguel Mila Milan Mina Mohamed Mona Nadia Nina Noah
Nora Oleg Olga Oliver Omar Oscar Otto Pablo Paul Paula Pedro Peter Petra Priya Quinn Rachel Rafael
Raj Ravi Rita Robert Rosa Ruth Ryan Sam Samir Sara Sarah Sean Selma Simon Sofia Søren Stella Sven
Tara Thomas Tim Tina Tom Tomas Uma Vera Victor Vikram Viola Walter Wei Will Xavier Yara Yuki Yusuf
Zara Zoe Zoë
"""

CITIES = """
Aarhus Accra Algiers Amsterdam Ankara Athens Auckland Baghdad Baku Bangkok Barcelona Basel Beijing
Beirut Belgrade Bergen Berlin Bern Bogotá Bonn Boston Brussels Budapest Cairo Calgary Cape_Town
Cardiff Chicago Cologne Copenhagen Dakar Dallas Delhi Denver Detroit Dhaka Doha Dresden Dubai
Dublin Edinburgh Florence Frankfurt Geneva Genoa Ghent Glasgow Graz Hamburg Hanoi Havana Helsinki
Houston Istanbul Jakarta Jena Kabul Karachi Kiel Kobe Kraków Kyiv Kyoto Lagos Leeds Leipzig Lima
Lisbon Liverpool London Los_Angeles Lund Lyon Madrid Malmö Manila Marseille Melbourne Mexico_City
Miami Milan Minsk Montreal Moscow Mumbai Munich Nairobi Naples New_York Nice Osaka Oslo Ottawa
Oxford Paris Perth Porto Prague Quito Riga Rome Rotterdam Salzburg San_Diego Santiago Seattle Seoul
Seville Shanghai Singapore Sofia Stockholm Sydney Taipei Tallinn Tampa Tehran Tokyo Toronto Trieste
Tunis Turin Utrecht Valencia Venice Vienna Vilnius Warsaw Wellington York Zagreb Zürich
"""

COLORS = """
amber apricot aqua azure beige black blue bronze brown burgundy cherry chocolate copper coral cream
crimson cyan dark_blue dark_green emerald fuchsia gold gray green grey indigo ivory jade khaki
lavender lemon light_blue lilac lime magenta maroon mauve mint mustard navy ochre olive orange
peach pearl pink plum purple red rose ruby rust sage salmon sand sapphire scarlet sepia silver
sky_blue tan teal turquoise violet white yellow
"""

FOODS = """
apples bananas beans bread broccoli burgers butter cake carrots cheese cherries chicken chili chips
cookies corn couscous crackers curry dal dumplings eggs fish french_fries fried_rice garlic grapes
ham honey hummus ice_cream kebab kimchi lasagna lentils mango melon muffins mushrooms noodles nuts
olives onions oranges pancakes pasta peanuts pears peas pie pineapple pizza plums popcorn porridge
potatoes pumpkin ramen rice risotto salad salmon sandwiches sausages soup spaghetti spinach steak
strawberries stew sushi tacos tofu tomatoes tuna waffles walnuts yogurt
"""

ANIMALS = """
ant bat bear beaver bee bison boar buffalo butterfly camel cat cheetah chicken cow crab crane
crocodile crow deer dog dolphin donkey dove dragonfly duck eagle eel elephant falcon ferret fox
frog giraffe goat goose gorilla hamster hare hawk hedgehog heron horse jaguar kangaroo koala lemur
leopard lion lizard llama lobster lynx magpie mole monkey moose mouse octopus otter owl ox panda
parrot peacock penguin pig pigeon pony puma rabbit raccoon rat raven red_panda rhino robin salmon
seal shark sheep snail snake sparrow spider squirrel stork swan tiger tortoise trout turkey turtle
walrus wasp weasel whale wolf zebra
"""

HOBBIES = """
acting archery astronomy baking ballet baseball basketball biking boxing bowling camping card_games
carpentry ceramics chess climbing coding cooking crochet cycling dancing diving drawing embroidery
fencing fishing football gaming gardening golf guitar gymnastics hiking hockey horse_riding hunting
jogging judo juggling karate kayaking knitting magic meditation model_trains music origami painting
photography piano poetry pottery reading rowing rugby running sailing sculpting sewing singing
skating skiing sketching skydiving soccer surfing swimming tennis theater travel violin volleyball
walking weaving wrestling writing yoga
"""

PETS = """
Ace Angus Archie Bailey Bandit Barney Bear Bella Benji Biscuit Blackie Bonnie Boomer Bruno Bubbles
Buddy Caesar Casper Charlie Chester Chico Cleo Coco Cookie Cosmo Daisy Dexter Domino Duke Felix
Fido Flash Fluffy Garfield Ginger Goldie Gus Hazel Honey Hunter Jasper Jerry Joey Kitty Lady Lassie
Loki Lucky Lulu Luna Maggie Max Midnight Millie Milo Misty Mittens Molly Monty Nala Oreo Oscar
Patches Peanut Pepper Pluto Poppy Prince Princess Pumpkin Rex Riley Rocky Roxy Rufus Rusty Sadie
Salem Sam Sandy Scout Shadow Simba Smokey Snowball Socks Sparky Spike Spot Stella Sunny Teddy Thor
Tiger Toby Toto Whiskers Winston Ziggy
"""

# Words of system prompts and of sentences that the model has no answer for.
SMALL_TALK = """
a about after again all always and answer are as ask at back bad be because before best big book
bring but by can car clear come day did do door down early easy every few find first for friend
from game garden get give go good great hand happy have help here home house how if in is it just
keep kind know last late learn left letter light like line list little long look lot make many
maybe more morning much music need never new next night no not now of often old on once only open
or other our out over own part people plan play please quick quiet rain read ready right road room
run say school second see send short show side simple small so some song soon start step stop story
sun table take talk test than that the then there thing think this time to today together tomorrow
too town train tree try turn two under until up use very wait walk want warm was watch water way we
week well were what when which while who why wind window with word work world would write year yes
you young
"""


def split_words(block: str) -> tuple[str, ...]:
    """Split a block of words; an underscore becomes a space."""
    return tuple(word.replace("_", " ") for word in block.split())
